"""Writes the gRPC stubs and their types from ``goqueue.proto``; ``--check`` only tells whether they are stale."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
PROTO = Path("goqueue/wire/proto/goqueue.proto")


def generate(target: Path) -> None:
    scripts = Path(sys.executable).parent
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{SOURCE}"]
    command += [f"--python_out={target}", f"--grpc_python_out={target}"]
    # The plugins for types would say on stdout what they write.
    command += [f"--mypy_out=quiet:{target}", f"--mypy_grpc_out=quiet:{target}"]
    command += [f"--plugin=protoc-gen-{name}={scripts}/protoc-gen-{name}" for name in ("mypy", "mypy_grpc")]
    subprocess.run([*command, str(PROTO)], check=True, cwd=SOURCE)


def main() -> int:
    if sys.argv[1:] != ["--check"]:
        generate(SOURCE)
        return 0
    with tempfile.TemporaryDirectory() as name:
        generate(Path(name))
        fresh = sorted((Path(name) / PROTO.parent).iterdir())
        stale = [file.name for file in fresh if (SOURCE / PROTO.parent / file.name).read_bytes() != file.read_bytes()]
    if stale:
        sys.stderr.write(f"stale: {', '.join(stale)}; run make proto\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())

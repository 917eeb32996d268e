from __future__ import annotations

from doubles.async_tests import pytest_pyfunc_call  # noqa: F401

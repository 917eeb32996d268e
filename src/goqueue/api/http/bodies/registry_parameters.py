"""The parameters of the schema registry's paths, named as existing registries name them."""

from __future__ import annotations

from typing import Annotated

from litestar.params import PathParameter, QueryParameter

MOST_LISTED = 1_000
MOST_IN_A_PAGE = 10_000

SubjectPath = Annotated[str, PathParameter(description="The subject's name, 1 to 1,000 printable characters.")]
VersionPath = Annotated[str, PathParameter(description="The version's number from 1 on; latest or -1 is the latest.")]
SchemaIdPath = Annotated[str, PathParameter(description="The schema's id, a number.")]
GuidPath = Annotated[str, PathParameter(description="The schema's guid.")]

# Which ones

Prefix = Annotated[
    str, QueryParameter(description="Only subjects whose names begin with it; :*: before it stands for every context.")
]
OnlySubject = Annotated[str, QueryParameter(description="Only where this subject uses it.")]
PassedOver = Annotated[str, QueryParameter(description="Not looked at: an id stands for one schema everywhere.")]
Deleted = Annotated[bool, QueryParameter(description="Softly deleted ones as well.")]
DeletedOnly = Annotated[bool, QueryParameter(description="Only softly deleted ones.")]
DeletedOnlyToo = Annotated[bool, QueryParameter(description="The same as deletedOnly.")]
LatestOnly = Annotated[bool, QueryParameter(description="Only the latest version of each subject.")]
MetadataKeys = Annotated[
    list[str] | None, QueryParameter(description="A property that its metadata has; several may be given.")
]
MetadataValues = Annotated[
    list[str] | None, QueryParameter(description="The value of that property, in the order of the keys.")
]
OrGlobal = Annotated[
    bool, QueryParameter(description="If the subject has none of its own, answer with what holds for it.")
]

# How many

Skip = Annotated[int, QueryParameter(description="How many to leave out from the beginning.")]
Limit = Annotated[int, QueryParameter(description="The most to answer with; less than 0: all.")]
LimitOfUses = Annotated[
    int,
    QueryParameter(description=f"The most to answer with; less than 0: as many as fit a page, {MOST_IN_A_PAGE:,}."),
]
LimitOfSchemas = Annotated[
    int, QueryParameter(description=f"The most to answer with, at most {MOST_LISTED:,}; less than 0: as many as that.")
]

# How

Format = Annotated[
    str,
    QueryParameter(description="How the text is written: resolved (Avro), serialized (Protobuf); else as registered."),
]
Normalize = Annotated[
    bool, QueryParameter(description="Make one form of what is only said differently: see docs/schemas.md.")
]
Verbose = Annotated[bool, QueryParameter(description="Tell why not, too.")]
FetchMaxId = Annotated[bool, QueryParameter(description="Tell the highest id so far as well.")]
Permanent = Annotated[bool, QueryParameter(description="For good, of what is softly deleted already.")]
Force = Annotated[bool, QueryParameter(description="Set IMPORT even if there are schemas.")]

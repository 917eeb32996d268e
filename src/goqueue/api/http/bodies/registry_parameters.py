"""The parameters of the schema registry's paths, named as existing registries name them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

MOST_LISTED = 1_000
MOST_IN_A_PAGE = 10_000

SubjectPath = Annotated[str, Meta(description="The subject's name, 1 to 1,000 printable characters.")]
VersionPath = Annotated[str, Meta(description="The version's number from 1 on; latest or -1 is the latest.")]
SchemaIdPath = Annotated[str, Meta(description="The schema's id, a number.")]
GuidPath = Annotated[str, Meta(description="The schema's guid.")]

# Which ones

Prefix = Annotated[
    str, Meta(description="Only subjects whose names begin with it; :*: before it stands for every context.")
]
OnlySubject = Annotated[str, Meta(description="Only where this subject uses it.")]
PassedOver = Annotated[str, Meta(description="Not looked at: an id stands for one schema everywhere.")]
Deleted = Annotated[bool, Meta(description="Softly deleted ones as well.")]
DeletedOnly = Annotated[bool, Meta(description="Only softly deleted ones.")]
DeletedOnlyToo = Annotated[bool, Meta(description="The same as deletedOnly.")]
LatestOnly = Annotated[bool, Meta(description="Only the latest version of each subject.")]
MetadataKeys = Annotated[list[str] | None, Meta(description="A property that its metadata has; several may be given.")]
MetadataValues = Annotated[list[str] | None, Meta(description="The value of that property, in the order of the keys.")]
OrGlobal = Annotated[bool, Meta(description="If the subject has none of its own, answer with what holds for it.")]

# How many

Skip = Annotated[int, Meta(description="How many to leave out from the beginning.")]
Limit = Annotated[int, Meta(description="The most to answer with; less than 0: all.")]
LimitOfUses = Annotated[
    int, Meta(description=f"The most to answer with; less than 0: as many as fit a page, {MOST_IN_A_PAGE:,}.")
]
LimitOfSchemas = Annotated[
    int, Meta(description=f"The most to answer with, at most {MOST_LISTED:,}; less than 0: as many as that.")
]

# How

Format = Annotated[
    str, Meta(description="How the text is written: resolved (Avro), serialized (Protobuf); else as registered.")
]
Normalize = Annotated[bool, Meta(description="Make one form of what is only said differently: see docs/schemas.md.")]
Verbose = Annotated[bool, Meta(description="Tell why not, too.")]
FetchMaxId = Annotated[bool, Meta(description="Tell the highest id so far as well.")]
Permanent = Annotated[bool, Meta(description="For good, of what is softly deleted already.")]
Force = Annotated[bool, Meta(description="Set IMPORT even if there are schemas.")]

"""What a command works on: a spec in a file or a run of it, with the user's changes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

from slm_lab.records.lookup import resolve_spec_name
from slm_lab.records.trust import check_source
from slm_lab.spec.limits import check_writable
from slm_lab.spec.load import load_spec
from slm_lab.spec.schema.spec import Spec

if TYPE_CHECKING:
    from slm_lab.records.init_from import Parent


@final
@dataclass(frozen=True)
class RunSource:
    """A spec in a file, or a run of it, with the options that all commands have."""

    spec_file: str
    spec_name: str | None = None
    """None: the only spec of the file."""
    run: str | None = None
    """ "latest", a folder, or its name in the data folder; None: a new run"""
    sets: tuple[str, ...] = ()
    """Changes of the spec, each `key=value`."""
    seed: int | None = None
    """Replaces `meta.random_seed`."""
    data_dir: Path = Path("data")
    imports: tuple[str, ...] = ()
    """Modules already imported. A run folder may name no others."""
    label: str | None = None
    """The user's name for a new run; it is recorded, and finds the run."""
    is_only: bool = False
    """Whether no other run may have its label."""
    note: str | None = None
    """The user's note about a new run."""
    parent: "Parent | None" = None
    """The saved agent that a new run begins with."""
    archive: Path | None = None
    """The shared run that `run` is unpacked from."""
    schedules: Literal["stretch", "hold"] | None = None
    """What the schedules of a resumed run do with a new budget; None: not said."""

    def name(self) -> str:
        """The name of the spec. Raises UsageError if the file holds several and none is
        named."""
        return resolve_spec_name(self.spec_file, self.spec_name)

    def where(self, spec: Spec) -> str:
        """The place of `spec`, for messages."""
        return f"{self.spec_file}: {spec.name}"

    def load(
        self,
        overrides: Mapping[str, Any] | None = None,
        for_search: bool = False,
        warn: bool = True,
    ) -> Spec:
        """The spec of the file with `sets` and `overrides`, by default only `seed`.
        `warn` logs suspicious keys. Raises SpecError with every problem, UsageError if
        it names modules not in `imports`."""
        if overrides is None:
            overrides = {} if self.seed is None else {"meta.random_seed": self.seed}
        args = self.spec_file, self.spec_name, self.sets, overrides
        spec = load_spec(*args, warn=warn, for_search=for_search)
        check_writable(spec.to_json(), self.where(spec))
        check_source(self.spec_file, spec, self.imports, self.sets)
        return spec

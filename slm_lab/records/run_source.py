"""The request of a user: a spec in a file or a run of it, with all options."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final

if TYPE_CHECKING:
    from slm_lab.records.init_from import Parent
    from slm_lab.spec.schema.spec import Spec

OutputForm: TypeAlias = Literal["text", "json", "nothing"]
"""Lines and tables, one JSON document, or only warnings and errors."""


@final
@dataclass(frozen=True)
class RunSource:
    """A spec in a file, or a run of it, with the options of `slm-lab run`.

    The command line and the Python API each fill it by name, and it is passed on whole.
    So a new option is a field here, which only the code that it concerns reads. Nothing
    heavy is imported for it."""

    spec_file: str = ""
    """A path or a shipped name. Empty: the spec file of the run."""
    spec_name: str | None = None
    """The name of the spec in the file; None: the only one."""
    run: str | None = None
    """ "latest", a folder, or its name in the data folder; None: a new run begins."""
    sets: tuple[str, ...] = ()
    """Changes of the spec, each `key=value`."""
    seed: int | None = None
    """Replaces `meta.random_seed`."""
    data_dir: Path = Path("data")
    """The folder of run folders."""
    imports: tuple[str, ...] = ()
    """Modules to import; a run folder may name no others."""
    trust: bool = False
    """Whether all modules that the run or file names are imported too."""

    # a run that begins
    label: str | None = None
    """The user's name for a new run; it is recorded, and finds the run."""
    resume: bool = False
    """Whether the run with this label is resumed, if there is one. No second one then
    begins."""
    note: str | None = None
    """The user's note about a new run."""
    tags: tuple[str, ...] = ()
    """The user's tags of a new run."""
    init_from: str | None = None
    """The run whose weights and normalisers a new run begins with."""
    init_parts: tuple[str, ...] = ()
    """The parts to take of it, such as "net" or "critic"; empty: everything."""
    parent: "Parent | None" = None
    """The saved agent that `init_from` names, once it is found."""

    fork: str | None = None
    """The run whose state a new run continues, with other keys."""
    frame: int | None = None
    """The total frame at which it leaves that run; None: the newest checkpoint's."""

    track: tuple[str, ...] = ()
    """The trackers, or other callbacks by name. Empty: the trackers of the run that
    resumes; "none": none."""

    # a run that resumes, and a search
    schedules: Literal["stretch", "hold"] | None = None
    """Whether the schedules of a resumed run keep their shares of a new budget
    ("stretch") or their frames ("hold"). None: the user does not say."""
    keep: int | None = None
    """The number of the best trials that keep checkpoints; None: all."""

    # saved agents, to be played or to begin with
    which: Literal["best", "latest"] | None = None
    """The saved agent. None: the one with the best return, else the latest."""
    session: int | None = None
    """The Session of the agent. None: all where they are evaluated, else the first."""
    episodes: int | None = None
    """The number of episodes that each agent plays; None: the command's default."""
    render: bool = False
    """Whether the episodes are shown in a window."""
    video: bool = False
    """Whether each episode becomes an mp4 file in the current folder."""
    save: bool = False
    """Whether the numbers of an evaluation are kept in the run folder."""
    archive: Path | None = None
    """The shared run that `run` is unpacked from."""

    # what is printed
    output: OutputForm = "text"
    all_metrics: bool = False
    """Whether all metrics are printed at the end, not only the first ones."""

    @contextmanager
    def unpacked(self) -> Iterator["RunSource"]:
        """The same with the folder of its shared run, which is unpacked meanwhile.
        Errors name the file. Any other source stays as it is."""
        from slm_lab.records.archive import archive_of, unpacked

        assert self.run is not None
        with unpacked(self.run) as folder:
            yield replace(self, run=folder, archive=archive_of(self.run, folder))

    def name(self) -> str:
        """The name of the spec. Raises UsageError if the file holds several and none is
        named."""
        from slm_lab.records.lookup import resolve_spec_name

        return resolve_spec_name(self.spec_file, self.spec_name)

    def where(self, spec: "Spec") -> str:
        """The place of `spec`, for messages."""
        return f"{self.spec_file}: {spec.name}"

    def load(
        self,
        overrides: Mapping[str, Any] | None = None,
        for_search: bool = False,
        warn: bool = True,
    ) -> "Spec":
        """The spec of the file with `sets` and `overrides`; by default only `seed` is
        overridden. `warn` logs suspicious keys. Raises SpecError with every problem,
        UsageError if it names modules not in `imports`."""
        from slm_lab.records.trust import check_source
        from slm_lab.spec.limits import check_writable
        from slm_lab.spec.load import load_spec

        if overrides is None:
            overrides = {} if self.seed is None else {"meta.random_seed": self.seed}
        spec = load_spec(
            self.spec_file,
            self.spec_name,
            self.sets,
            overrides,
            warn=warn,
            for_search=for_search,
        )
        check_writable(spec.to_json(), self.where(spec))
        check_source(self.spec_file, spec, self.imports, self.sets)
        return spec

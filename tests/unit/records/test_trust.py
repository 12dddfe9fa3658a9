"""Which modules a run folder names, and which of them are imported."""

import json
import re
import socket
import sys
from pathlib import Path

import pytest

from slm_lab.core.errors import SpecError, UsageError
from slm_lab.core.plugins import is_covered, refuse_inside
from slm_lab.records.run_source import RunSource
from slm_lab.records.trust import (
    check_allowed,
    check_cluster_allowed,
    imports_for,
    imports_of_file,
    modules_at,
    modules_of,
    named_by,
    refuse_paths,
    resume_words,
)
from slm_lab.spec.search import dimensions
from slm_lab.storage.manifest import FORMAT
from slm_lab.studies.run import PreparedRun
from tests.support import parse, ppo
from tests.unit.records.runs import write_run

MODULE = "a_module_of_consent"


@pytest.fixture(autouse=True)
def _path(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.mark.parametrize(
    ("search", "named"),
    [
        (None, ("first.part",)),
        (
            {"env.name__choice": ["CartPole-v1", "second:Id-v0"]},
            ("first.part", "second"),
        ),
        ({"env": {"name__grid_search": ["second:Id-v0"]}}, ("first.part", "second")),
        ({"agent.algorithm.gamma__uniform": [0.9, 0.99]}, ("first.part",)),
    ],
)
def test_the_modules_of_a_spec_are_those_of_its_environments(search, named):
    spec = parse(ppo(env__name="first.part:Id-v0"))
    assert modules_of(spec.model_copy(update={"search": search})) == named


@pytest.mark.parametrize(
    "search",
    [
        {
            "env.wrappers__choice": [
                [],
                ["second:A", {"name": "third.part:B", "x": "no:t"}],
            ]
        },
        {"env": {"wrappers__grid_search": [["second:A"], ["third.part:B"]]}},
        {"env.wrappers.0__choice": ["second:A", {"name": "third.part:B"}]},
        {"env.wrappers.0.name__choice": ["second:A", "third.part:B"]},
        {
            "env__choice": [
                {"name": "CartPole-v1", "wrappers": ["second:A", "third.part:B"]}
            ]
        },
    ],
    ids=str,
)
def test_wrappers_name_modules_too_also_in_a_search_and_at_its_points(tmp_path, search):
    spec = parse(
        ppo(env__wrappers=["first:A", {"name": "first.inner:B", "module": "no:t"}])
    )
    searched = spec.model_copy(update={"search": search})
    assert modules_of(spec) == ("first", "first.inner")
    assert modules_of(searched) == ("first", "first.inner", "second", "third.part")
    file = tmp_path / "spec.json"
    file.write_text(json.dumps({"a": searched.to_json()}))
    assert named_by([file]) == modules_of(searched)
    points = [{each.path: value} for each in dimensions(search) for value in each.args]
    assert modules_at(points) == ("second", "third.part")


def test_the_modules_of_points_are_those_of_their_environments():
    points = [
        {"env.name": "one:Id-v0", "agent.algorithm.gamma": 0.9},
        {"env": {"name": "two:Id-v0"}},
        {"env.name": "CartPole-v1"},
        {"agent.algorithm.gamma": 0.9},
    ]
    assert modules_at(points) == ("one", "two")


def test_a_file_names_what_its_run_was_started_with_and_its_environments(tmp_path):
    file = tmp_path / "spec.json"
    specs = {"a": ppo(env__name="env_module:Id-v0"), "b": ppo(), "_anchor": {"x": 1}}
    file.write_text(json.dumps({**specs, "_run": {"imports": ["plug_in"]}}))
    assert named_by([file]) == ("plug_in", "env_module")


@pytest.mark.parametrize("imports", ["plug_in", [1], {"a": 1}])
def test_imports_that_are_no_list_of_names_are_one_clear_line(tmp_path, imports):
    file = tmp_path / "spec.json"
    file.write_text(json.dumps({"a": ppo(), "_run": {"imports": imports}}))
    with pytest.raises(
        SpecError, match=r"_run\.imports: must be a list of module names"
    ):
        named_by([file])


@pytest.mark.parametrize(
    ("module", "allowed", "covered"),
    [
        ("a.b", ["a"], True),
        ("a.b", ["a.b"], True),
        ("a", ["a.b"], False),
        ("ab", ["a"], False),
        ("a", [], False),
    ],
)
def test_the_import_option_for_a_package_covers_its_modules(module, allowed, covered):
    assert is_covered(module, allowed) == covered


def folder_naming(data, *imports):
    run_dir = write_run(data)
    content = json.loads(run_dir.spec_file.read_text())
    content["_run"]["imports"] = list(imports)
    run_dir.spec_file.write_text(json.dumps(content))
    return run_dir


def test_imports_are_the_allowed_recorded_modules_and_the_given_ones(tmp_path):
    data = tmp_path / "data"
    run_dir = folder_naming(data, f"{MODULE}.inner", f"{MODULE}_2")
    given = [MODULE, f"{MODULE}_2", f"{MODULE}_3"]
    recorded = (f"{MODULE}.inner", f"{MODULE}_2")
    assert imports_for(run_dir, given, False, data) == (
        *recorded,
        MODULE,
        f"{MODULE}_3",
    )
    assert imports_for(run_dir, [], True, data) == recorded
    with pytest.raises(UsageError) as caught:
        imports_for(run_dir, given[:1], False, data)
    assert f"the module {MODULE}_2. If you trust it" in str(caught.value)


def test_a_module_in_the_data_folder_is_refused_outside_of_it(tmp_path, monkeypatch):
    data = tmp_path / "data"
    run_dir = folder_naming(data, f"data.{MODULE}")
    (data / f"{MODULE}.py").touch()
    monkeypatch.chdir(tmp_path)
    for trust, given in ((True, []), (False, [f"data.{MODULE}"])):
        with pytest.raises(UsageError, match="whose code is never run"):
            imports_for(run_dir, given, trust, data)
    run_dir = folder_naming(data / "more", MODULE)
    monkeypatch.chdir(data)
    assert imports_for(run_dir, [MODULE], False, data) == (MODULE,)


def test_a_module_beside_a_downloaded_run_is_refused(tmp_path, monkeypatch):
    run_dir = folder_naming(tmp_path / "downloads", f"downloads.{MODULE}")
    (tmp_path / "downloads" / f"{MODULE}.py").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="whose code is never run"):
        imports_for(run_dir, [], True, tmp_path / "data")


@pytest.mark.parametrize("name", ["../x", "a b", "a..b", "", "a\0b", ".a"])
def test_an_invalid_module_name_is_one_clear_line(tmp_path, name):
    with pytest.raises(UsageError, match="is no valid module name"):
        check_allowed(tmp_path, [name], [name])


@pytest.mark.parametrize(
    "kind", ["module", "package", "link to a module", "link to a folder"]
)
def test_a_module_in_a_folder_is_found_there_without_an_import(
    tmp_path, monkeypatch, kind
):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    for folder in (outside, inside):
        folder.mkdir()
    raises = "raise AssertionError('it was imported')"
    match kind:
        case "module":
            monkeypatch.syspath_prepend(inside)
            (inside / f"{MODULE}.py").write_text(raises)
        case "package":
            monkeypatch.chdir(tmp_path)
            (inside / f"{MODULE}.py").write_text(raises)
        case "link to a module":
            monkeypatch.syspath_prepend(outside)
            (inside / "hidden.py").write_text(raises)
            (outside / f"{MODULE}.py").symlink_to(inside / "hidden.py")
        case _:
            monkeypatch.chdir(outside)
            (inside / f"{MODULE}.py").write_text(raises)
            (outside / "inside").symlink_to(inside, target_is_directory=True)
    name = f"inside.{MODULE}" if kind in ("package", "link to a folder") else MODULE
    with pytest.raises(UsageError, match="whose code is never run"):
        refuse_inside([name], [inside])
    refuse_inside([name], [tmp_path / "elsewhere"])
    assert name not in sys.modules


def test_installed_modules_are_outside_the_data_folder(tmp_path):
    refuse_inside(["torch", "json", "slm_lab.env.make"], [tmp_path])
    refuse_inside(["pytest", "sys"], [Path(tmp_path.anchor)])


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({"xml_file": "/etc/passwd"}, "xml_file"),
        ({"scene": {"robot": {"xml_file": "../secret.xml"}}}, "scene.robot.xml_file"),
        ({"maps": ["plain", "~/secret.map"]}, "maps.1"),
        ({"parts": [{"mesh": "C:\\secret.obj"}]}, "parts.0.mesh"),
    ],
)
def test_an_argument_of_a_shared_run_that_names_a_file_is_refused_at_any_depth(
    arguments, path
):
    with pytest.raises(UsageError, match=re.escape(f"a.zip: env.{path} = ")):
        refuse_paths(Path("a.zip"), arguments)


def test_arguments_of_a_shared_run_that_name_no_file_are_allowed():
    refuse_paths(
        Path("a.zip"), {"sutton": True, "parts": [{"mesh": "box", "sizes": [1, 2.5]}]}
    )


CLUSTER = "10.0.0.1:6379"


@pytest.mark.parametrize(
    ("sets", "allowed"),
    [
        ((), False),
        (("env.max_frame=2000",), False),
        ((f"meta.cluster={CLUSTER}",), True),
        (("meta.cluster=null",), True),
        ((f'meta={{"cluster": "{CLUSTER}"}}',), True),
    ],
)
def test_a_cluster_that_only_a_run_folder_names_is_not_used(tmp_path, sets, allowed):
    spec = parse(ppo(meta__cluster=CLUSTER))
    if allowed:
        check_cluster_allowed(tmp_path, spec, sets)
        return
    with pytest.raises(
        UsageError, match=f"repeat the command with --cluster {CLUSTER}; "
    ) as error:
        check_cluster_allowed(tmp_path, spec, sets)
    assert "\n" not in str(error.value)
    check_cluster_allowed(tmp_path, parse(ppo()), ())


def resume(run, tmp_path):
    PreparedRun(RunSource(str(run.spec_file), run=str(run.root), data_dir=tmp_path))


def begin(run, tmp_path):
    PreparedRun(RunSource(str(run.spec_file), "small", data_dir=tmp_path / "new"))


@pytest.mark.parametrize("use", [resume, begin])
def test_no_connection_is_made_to_a_cluster_that_a_run_folder_names(tmp_path, use):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        run = write_run(
            tmp_path, ppo(meta__cluster=address, meta__distributed="all_reduce")
        )
        content = json.loads(run.spec_file.read_text())
        content["_run"] = {"format": FORMAT, "set": [], "packages": {}}
        run.spec_file.write_text(json.dumps(content))
        with pytest.raises(UsageError, match=f"names the Ray cluster {address}"):
            use(run, tmp_path)
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_the_command_that_resumes_a_run_types_its_cluster():
    folder = Path("data/run")
    assert resume_words(folder, False, CLUSTER)[2:] == ["--cluster", CLUSTER]
    assert resume_words(folder, True, None) == ["run", "search@data/run"]


def own_file(folder, imports):
    file = folder / "mine.json"
    file.write_text(json.dumps({"imports": imports, "a": ppo()}))
    return file


def test_the_users_own_spec_file_imports_what_it_lists(tmp_path):
    file = own_file(tmp_path, ["one", "two.part"])
    assert imports_of_file(str(file), ["three", "one"], trust=False) == (
        "three",
        "one",
        "two.part",
    )


def test_a_spec_file_of_a_run_imports_nothing_by_that_key(tmp_path):
    run_dir = write_run(tmp_path / "data")
    content = json.loads(run_dir.spec_file.read_text())
    run_dir.spec_file.write_text(json.dumps({"imports": ["one"], **content}))
    copy = tmp_path / "sent_alone.json"
    copy.write_text(run_dir.spec_file.read_text())
    unmarked = run_dir.root / "mine.json"
    unmarked.write_text(json.dumps({"imports": ["one"], "a": ppo()}))
    for file in (run_dir.spec_file, copy, unmarked):
        assert imports_of_file(str(file), [], trust=False) == ()
    assert imports_for(run_dir, [], False, tmp_path / "data") == ()


@pytest.mark.parametrize(
    "imports", ["one", [1], {"one": 1}, ["one.py/x"], ["-c"], None]
)
def test_imports_of_the_users_file_are_module_names(tmp_path, imports):
    with pytest.raises(
        SpecError, match=r"imports = .*: must be a list of module names"
    ):
        imports_of_file(str(own_file(tmp_path, imports)), [], trust=False)

"""What a process does that the Python API has started."""

from typer import Exit

from slm_lab.cli.shell.exit_codes import report_errors, run_guarded
from slm_lab.core.process import importing, stop_signals_blocked


def run_for_caller() -> None:
    """Does what its caller asks for."""

    def work() -> None:
        with report_errors() as caller:
            verb, request = caller.receive()
            if verb == "compare":
                with stop_signals_blocked(), importing():
                    from slm_lab.cli.compare import compare
                raise Exit(compare(request, caller))
            if verb == "ab":
                with stop_signals_blocked(), importing():
                    from slm_lab.cli.ab import ab
                raise Exit(ab(request, caller))
            from slm_lab.cli.dispatch import execute

            raise Exit(execute(verb, request, caller))

    run_guarded(work)

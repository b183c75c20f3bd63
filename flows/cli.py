"""The command line. Prose goes to standard error, results to standard output.

The commands import what they need when they are called: `plan` must not wait for torch, Prefect or Ray
(architecture 3).
"""

import contextlib
import functools
import inspect
import io
import os
import sys
import traceback
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar

import typer

from rnnsearch.flows import completion
from rnnsearch.flows.proxies import spare_loopback
from rnnsearch.flows.verbosity import Verbosity, set_verbosity, verbosity

CommandFunction = TypeVar("CommandFunction", bound=Callable[..., Any])

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more: details and tracebacks.")]


class _App(typer.Typer):
    """Every command has `-q` and `-v`."""

    def command(
        self, name: str | None = None, **settings: Any
    ) -> Callable[[CommandFunction], CommandFunction]:
        register = super().command(name, **settings)

        def add(function: CommandFunction) -> CommandFunction:
            register(_with_verbosity(function))
            return function

        return add


def _with_verbosity(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with two options more, which hold while it works."""

    @functools.wraps(function)
    def call(*arguments: Any, quiet: bool, verbose: bool, **options: Any) -> Any:
        if quiet and verbose:
            raise typer.BadParameter("--quiet and --verbose exclude each other; give one")
        set_verbosity(Verbosity.QUIET if quiet else Verbosity.VERBOSE if verbose else Verbosity.NORMAL)
        with contextlib.ExitStack() as stack:
            if quiet:  # prose goes to standard error; `main` keeps the real one for errors
                sink = stack.enter_context(Path(os.devnull).open("w", encoding="utf-8"))
                stack.enter_context(contextlib.redirect_stderr(sink))
            return function(*arguments, **options)

    more = {"quiet": Quiet, "verbose": Verbose}
    signature = inspect.signature(function)
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
        for name, kind in more.items()
    ]
    call.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *options])  # type: ignore[attr-defined]
    call.__annotations__ = {**function.__annotations__, **more}
    return call


app = _App(
    name="rnnsearch",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"rnnsearch {version('rnnsearch')}\n")
        raise typer.Exit


@app.callback()
def everywhere(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Reproduce RNNsearch (Bahdanau, Cho, Bengio 2015): a cached, resumable, distributed pipeline."""


Profile = Annotated[
    str,
    typer.Option(
        "--profile",
        "-p",
        help="A shipped profile (smoke, demo, wmt14) or a TOML file.",
        autocompletion=completion.profiles,
    ),
]
Overrides = Annotated[
    list[str],
    typer.Option(
        "--set",
        help="Change one key: section.key=value.",
        metavar="KEY=VALUE",
        autocompletion=completion.keys,
    ),
]
StoreAt = Annotated[
    str,
    typer.Option(
        "--store", envvar="RNNSEARCH_STORE", help="A folder, or s3://bucket/prefix.", metavar="WHERE"
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print what a program would read.")]
OfRun = Annotated[
    str | None,
    typer.Option("--run", help="A run; the last finished one by default.", autocompletion=completion.runs),
]
OfSystem = Annotated[
    str | None,
    typer.Option(
        "--system", help="A system of the run; its best one by default.", autocompletion=completion.systems
    ),
]

STORE = ".rnnsearch"
MANY = 1_000_000_000

ENVIRONMENT = {  # read by Prefect and Ray when they are imported
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",  # a busy machine is slow to start a server
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",  # Ray's own ports listen on all interfaces
}


def main() -> None:
    """Run the command line; a user's mistake ends in one message and exit code 2, a failed run in 1."""
    _speak_utf8()
    spare_loopback()
    from rnnsearch.flows.errors import USER_ERRORS  # noqa: PLC0415
    from rnnsearch.storage.errors import explained  # noqa: PLC0415

    try:
        app()
    except USER_ERRORS as error:
        _refuse(error)
    except BrokenPipeError:
        raise
    except OSError as error:
        _refuse(explained(error, f"use {error.filename or 'the disk'}"))
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # typer makes a 1 of it, which is a failed run's
            sys.exit(141)
        raise


@app.command()
def init(
    profile: Annotated[Path, typer.Argument(help="The TOML file to write; it must not be there.")],
    text: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            "--text", help="Two files of lines that translate one another.", metavar="SOURCE TARGET"
        ),
    ] = None,
    languages: Annotated[
        tuple[str, str],
        typer.Option("--languages", help="Languages of source and target.", metavar="FROM TO"),
    ] = ("en", "fr"),
    title: Annotated[
        str | None, typer.Option(help="Title of the report; the file's name by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a commented profile for a corpus of your own."""
    from rnnsearch.flows.command_init import write_profile  # noqa: PLC0415

    write_profile(profile, text, languages, title, as_json=as_json)


@app.command()
def run(
    profile: Profile = "demo",
    override: Overrides = [],  # noqa: B006
    store: StoreAt = STORE,
    until: Annotated[
        str | None,
        typer.Option("--until", help="The last stage, with all it needs.", autocompletion=completion.stages),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the pipeline; what is done already is not done again."""
    sys.exit(_run(profile, override, store, until=until, as_json=as_json))


@app.command()
def plan(
    stage: Annotated[
        str | None,
        typer.Argument(help="Only this stage, compared key by key.", autocompletion=completion.stages),
    ] = None,
    profile: Profile = "demo",
    override: Overrides = [],  # noqa: B006
    store: StoreAt = STORE,
    as_json: AsJson = False,
) -> None:
    """Say what a run would do: hit or miss for every stage, why, and what it took last time."""
    from rnnsearch.flows.command_plan import show_plan  # noqa: PLC0415

    show_plan(stage, profile, override, store, as_json)


@app.command()
def data(
    stage: Annotated[
        str | None,
        typer.Argument(
            help="Show the pairs that this stage kept and dropped.", autocompletion=completion.stages
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", help="A run; the last one by default.", autocompletion=completion.runs),
    ] = None,
    rows: Annotated[int, typer.Option(min=1, max=MANY, help="Pairs of each kind.")] = 5,
    store: StoreAt = STORE,
    as_json: AsJson = False,
) -> None:
    """Show the text of a run: counts, what was dropped and why, and what a survey found."""
    from rnnsearch.flows.command_data import show_data  # noqa: PLC0415

    show_data(stage, run, rows, store, as_json=as_json)


@app.command()
def fetch(
    source: Annotated[
        list[str] | None, typer.Argument(help="Sources of the profile; all of them by default.")
    ] = None,
    again: Annotated[
        list[str] | None,
        typer.Option("--again", help="Fetch this source although it is there.", metavar="SOURCE"),
    ] = None,
    profile: Profile = "demo",
    override: Overrides = [],  # noqa: B006
    store: StoreAt = STORE,
    as_json: AsJson = False,
) -> None:
    """Bring the sources of a profile into the store before a run needs them; print their digests."""
    from rnnsearch.flows.command_fetch import fetch_sources  # noqa: PLC0415

    fetch_sources(source or (), again or (), profile, override, store, as_json=as_json)


@app.command()
def lock(
    update: Annotated[
        list[str] | None,
        typer.Option("--update", help="Accept what this source gives now.", metavar="SOURCE"),
    ] = None,
    profile: Profile = "demo",
    override: Overrides = [],  # noqa: B006
    store: StoreAt = STORE,
    as_json: AsJson = False,
) -> None:
    """Write the digests of a profile's sources into a lock file beside it, as pins for every store."""
    from rnnsearch.flows.command_lock import lock_sources  # noqa: PLC0415

    lock_sources(update or (), profile, override, store, as_json=as_json)


@app.command()
def runs(
    run: Annotated[
        str | None, typer.Argument(help="One run, stage by stage.", autocompletion=completion.runs)
    ] = None,
    store: StoreAt = STORE,
    tag: Annotated[str | None, typer.Option(help="Give the run a tag; tagged runs are kept by gc.")] = None,
    untag: Annotated[str | None, typer.Option(help="Take a tag from the run.")] = None,
    as_json: AsJson = False,
) -> None:
    """List past and present runs."""
    from rnnsearch.flows.command_inspect import show_runs  # noqa: PLC0415

    show_runs(run, store, tag, untag, as_json)


@app.command()
def lineage(
    what: Annotated[
        str,
        typer.Argument(
            help="A run, a tag, a stage, the start of a digest, or with --row corpus:line.",
            autocompletion=completion.runs,
        ),
    ],
    store: StoreAt = STORE,
    run: Annotated[str | None, typer.Option(help="A run; the last finished one by default.")] = None,
    down: Annotated[bool, typer.Option("--down", help="What was made from it, instead.")] = False,
    row: Annotated[bool, typer.Option("--row", help="Follow one row through the stages.")] = False,
    used_by: Annotated[bool, typer.Option("--used-by", help="Which runs used it, instead.")] = False,
    code: Annotated[bool, typer.Option("--code", help="The source code that made it, instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what something was made from, as a tree: in the last run that finished, or in another."""
    from rnnsearch.flows.command_inspect import show_code, show_lineage, show_row, show_uses  # noqa: PLC0415

    if down + row + used_by + code > 1 or (used_by and run is not None):
        raise typer.BadParameter(
            "give one of --down, --row, --used-by and --code; --used-by looks at every run"
        )
    if code:
        show_code(what, store, run, as_json)
    elif row:
        show_row(what, store, run, as_json)
    elif used_by:
        show_uses(what, store, as_json)
    else:
        show_lineage(what, store, run, down=down, as_json=as_json)


@app.command()
def diff(
    first: Annotated[
        str,
        typer.Argument(help="A run: its id, the start of it, or a tag.", autocompletion=completion.runs),
    ],
    second: Annotated[
        str, typer.Argument(help="The run to compare it with.", autocompletion=completion.runs)
    ],
    store: StoreAt = STORE,
    sentences: Annotated[int, typer.Option(min=0, max=MANY, help="Sentences to show of each system.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Say what differs between two runs: settings, code, data, curves, BLEU and its significance, sentences."""
    from rnnsearch.flows.command_diff import show_diff  # noqa: PLC0415

    show_diff(first, second, store, sentences, as_json)


@app.command()
def translate(
    file: Annotated[
        str | None,
        typer.Argument(
            help="A text file, or a sentence; standard input by default.", metavar="FILE|SENTENCE"
        ),
    ] = None,
    store: StoreAt = STORE,
    run: OfRun = None,
    system: OfSystem = None,
    model: Annotated[Path | None, typer.Option(help="An exported model instead of a run.")] = None,
    search: Annotated[
        list[str],
        typer.Option(
            help="Change the search: beam=12, or preset=groundhog.",
            metavar="KEY=VALUE",
            autocompletion=completion.search_keys,
        ),
    ] = [],  # noqa: B006
    n_best: Annotated[int, typer.Option("--nbest", min=1, max=10_000, help="Candidates for each line.")] = 1,
    scores: Annotated[bool, typer.Option("--scores", help="Print each candidate's cost before it.")] = False,
    attention: Annotated[
        str | None, typer.Option(help="`terminal`, or a file to write: .html, .svg, .png, .pdf.")
    ] = None,
    replace_unknown: Annotated[
        str | None,
        typer.Option(help="`copy`, or a file of `word TAB translation` lines, by strongest alignment."),
    ] = None,
    serve: Annotated[bool, typer.Option("--serve", help="Serve a page on this machine instead.")] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of the page; 0 for any free one.")
    ] = 8017,
    as_json: AsJson = False,
) -> None:
    """Translate lines of text: one line out for each line in, in order."""
    from rnnsearch.flows.command_translate import Wish, named, translate_lines  # noqa: PLC0415

    path, sentence = named(file)
    wish = Wish(
        store=store,
        run=run,
        system=system,
        model=model,
        file=path,
        sentence=sentence,
        search=tuple(search),
        n_best=n_best,
        scores=scores,
        attention=attention,
        replace_unknown=replace_unknown,
        as_json=as_json,
    )
    if serve:
        from rnnsearch.flows.command_serve import serve_page  # noqa: PLC0415

        serve_page(wish, port)
    else:
        translate_lines(wish)


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(help="The folder to make; it must not be there.")],
    store: StoreAt = STORE,
    run: OfRun = None,
    system: OfSystem = None,
    as_: Annotated[
        Literal["model", "text"],
        typer.Option("--as", help="A system that `translate --model` loads, or an output as lines of text."),
    ] = "model",
    of: Annotated[
        str | None,
        typer.Option(
            "--of",
            help="The output to write as text: STAGE:OUTPUT.",
            metavar="OUTPUT",
            autocompletion=completion.outputs,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a trained system, or what a stage made as lines of text, into a new folder."""
    if as_ == "text" or of is not None:
        from rnnsearch.flows.command_export_text import export_text  # noqa: PLC0415

        export_text(store, run, of, folder, as_json=as_json)
        return
    from rnnsearch.flows.command_export import export_system  # noqa: PLC0415

    export_system(store, run, system, folder, as_json=as_json)


@app.command("import")
def import_(
    source: Annotated[
        str, typer.Argument(help="The other store: a folder, or s3://bucket/prefix.", metavar="FROM")
    ],
    run: Annotated[str | None, typer.Option(help="A run there; its last finished one by default.")] = None,
    store: StoreAt = STORE,
    as_json: AsJson = False,
) -> None:
    """Bring a run from another store, with all that it made: as good as if it had run here."""
    from rnnsearch.flows.command_store import import_run  # noqa: PLC0415

    import_run(source, run, store, as_json=as_json)


@app.command()
def report(
    run: Annotated[
        str | None,
        typer.Argument(help="A run; the last finished one by default.", autocompletion=completion.runs),
    ] = None,
    store: StoreAt = STORE,
    to: Annotated[Path | None, typer.Option("--to", help="The folder to write.")] = None,
    as_json: AsJson = False,
) -> None:
    """Draw the report of a run: HTML, Markdown, JSON and figures."""
    from rnnsearch.flows.command_inspect import draw_report  # noqa: PLC0415

    draw_report(run, store, to, as_json=as_json)


@app.command()
def verify(
    store: StoreAt = STORE,
    repair: Annotated[
        bool, typer.Option("--repair", help="Delete what is damaged and make it again.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Hash the whole store again: what is missing or damaged."""
    from rnnsearch.flows.command_store import discard, say_repaired, verify_store  # noqa: PLC0415

    if not repair:
        sys.exit(verify_store(store, as_json))
    requests, had = discard(store)
    for profile, overrides in requests:
        _run(profile, list(overrides), store)
    sys.exit(say_repaired(store, had))


@app.command()
def gc(
    store: StoreAt = STORE,
    keep_last: Annotated[int, typer.Option(min=0, max=MANY, help="Runs that are kept without a tag.")] = 5,
    apply: Annotated[bool, typer.Option("--apply", help="Delete, instead of saying what would go.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say what no kept run reaches; delete it with --apply."""
    from rnnsearch.flows.command_store import collect_garbage  # noqa: PLC0415

    collect_garbage(store, keep_last, apply, as_json)


@app.command()
def adopt(
    stage: Annotated[str, typer.Argument(help="A stage of the profile.", autocompletion=completion.stages)],
    profile: Profile = "demo",
    override: Overrides = [],  # noqa: B006
    store: StoreAt = STORE,
    why: Annotated[str | None, typer.Option(help="What makes the old result good; lineage shows it.")] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take the adoption back.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let a stage's result stand although its code or a library's version changed."""
    from rnnsearch.flows.command_store import adopt_stage  # noqa: PLC0415

    adopt_stage(stage, profile, override, store, why=why, undo=undo, as_json=as_json)


@app.command()
def doctor(store: StoreAt = STORE, as_json: AsJson = False) -> None:
    """Look at this machine, the store, Ray and Prefect as a run would find them, and say what to do."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from rnnsearch.flows.command_doctor import show_findings  # noqa: PLC0415

    show_findings(store, as_json)


@app.command()
def deploy(
    profile: Profile = "demo",
    override: Overrides = [],  # noqa: B006
    store: StoreAt = STORE,
    cron: Annotated[str | None, typer.Option(help="A schedule, such as '0 2 * * *'.")] = None,
    timezone: Annotated[str, typer.Option(help="Time zone of the schedule.")] = "UTC",
    name: Annotated[
        str | None, typer.Option(help="Name of the deployment; the profile's by default.")
    ] = None,
    pool: Annotated[str, typer.Option(help="The work pool whose workers run it.")] = "rnnsearch",
    as_json: AsJson = False,
) -> None:
    """Register a profile as a scheduled deployment on the Prefect server at PREFECT_API_URL."""
    _check(profile, override)
    from rnnsearch.flows.deploy import deploy_profile  # noqa: PLC0415

    deploy_profile(
        profile, override, store, cron=cron, timezone=timezone, name=name, pool=pool, as_json=as_json
    )


def _refuse(error: Exception) -> NoReturn:
    """Say what went wrong, with a traceback if the user wants to see more."""
    if verbosity() is Verbosity.VERBOSE:
        traceback.print_exc()
    sys.stderr.write(f"rnnsearch: {error}\n")
    sys.exit(2)


def _speak_utf8() -> None:
    """Use UTF-8 whatever the locale: for names of files, arguments, standard output and the processes to come."""
    if sys.getfilesystemencoding() != "utf-8":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")  # names of files may be any bytes


def _run(
    profile: str, overrides: list[str], store: str, *, until: str | None = None, as_json: bool = False
) -> int:
    _check(profile, overrides)
    from rnnsearch.flows.errors import UsageError  # noqa: PLC0415
    from rnnsearch.flows.temporary import temporary_fault  # noqa: PLC0415

    if "RAY_ADDRESS" not in os.environ and (fault := temporary_fault()) is not None:
        raise UsageError(fault)
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from rnnsearch.flows.command_run import run_profile  # noqa: PLC0415

    return run_profile(profile, overrides, store, until=until, as_json=as_json)


def _check(profile: str, overrides: list[str]) -> None:
    """Say what is wrong with a profile at once: Prefect and Ray take seconds to import."""
    from rnnsearch.flows.settings import load_settings  # noqa: PLC0415

    load_settings(profile, overrides)

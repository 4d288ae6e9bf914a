"""93 mistakes of new users, and what the message about each has to say."""

from __future__ import annotations

from cli.mistakes.world import CASES, CODE, Mistake

Y = "promptgraft.yaml"
BY_METRIC = ("- name: exact", "- name: python\n    function: own.py:metric")
AGENT = """version: 1
prompts:
  mail:
    files: {system: mail.md}
dataset: cases.jsonl
metrics: [exact]
agent: {python: own.py:agent}
models:
  reflection: offline
"""
FOREIGN = """prompts:
  - "Name the team: {{text}}"
providers: [openai:chat]
tests:
  - vars: {text: a}
    assert: [{type: equals, value: b}]
"""
SILENT = """
from promptgraft import OpenAIAdapter, RetryPolicy

MODEL = OpenAIAdapter(
    "m", base_url="SERVER", api_key="none", timeout=0.2, policy=RetryPolicy(attempts=1)
)
"""
HEAD = "import promptgraft as pg\nrows = [(f'mail {at}', 'b') for at in range(30)]\n"
ROWS = "[{'a': 'x', 'b': str(at), 'expected': 'e'} for at in range(30)]"

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
PAGE = "<!DOCTYPE html>\n<html>Sign in</html>\n"
FOREIGN_DATA = (
    ("a pointer of Git LFS", "lfs.jsonl", POINTER, "a pointer of Git LFS", "`git lfs pull`"),
    ("a workbook", "book.csv", "PK\x03\x04", "an Excel workbook", "save its sheet as CSV"),
    ("a web page", "page.csv", PAGE, "found a web page", "download the file itself"),
    (
        "a table by columns",
        "table.json",
        '{"text": {"0": "a"}, "team": {"0": "b"}}',
        "the keys `text`, `team`",
        "orient='records'",
    ),
)
"""What stands in place of cases: its name, file and text, and what the message says."""


def check(name: str, before: str, after: str, **told: str) -> Mistake:
    """Return a mistake in the project file that ``check`` tells of."""
    return Mistake(name=name, command="check", edits={Y: (before, after)}, **told)  # type: ignore[arg-type]


def prompt(name: str, before: str, after: str, **told: str) -> Mistake:
    """Return a mistake in the Markdown prompt that ``check`` tells of."""
    return Mistake(name=name, command="check", edits={"mail.md": (before, after)}, **told)  # type: ignore[arg-type]


def data(name: str, cases: str, **told: str) -> Mistake:
    """Return a mistake in the cases that ``check`` tells of."""
    return Mistake(name=name, command="check", files={"cases.jsonl": cases}, **told)  # type: ignore[arg-type]


def code(name: str, before: str, after: str, command: str = "check", **told: str) -> Mistake:
    """Return a mistake in a metric of the project's Python."""
    files = {"own.py": CODE.replace(before, after)}
    return Mistake(name=name, command=command, files=files, edits={Y: BY_METRIC}, **told)  # type: ignore[arg-type]


def line(name: str, command: str, **told: str) -> Mistake:
    """Return a mistake on the command line."""
    return Mistake(name=name, command=command, **told)  # type: ignore[arg-type]


def python(name: str, source: str, **told: str) -> Mistake:
    """Return a mistake in a call of the library."""
    return Mistake(name=name, python=HEAD + source, **told)  # type: ignore[arg-type]


MISTAKES: tuple[Mistake, ...] = (
    # Mistakes in YAML
    check(
        "a tab in YAML",
        "  path: cases",
        "\tpath: cases",
        place="promptgraft.yaml:5",
        mend="indent with spaces instead of tabs",
    ),
    check(
        "a missing colon",
        "metrics:\n",
        "metrics\n",
        place="promptgraft.yaml:7",
        expected="`key: value`",
        found="`metrics`",
    ),
    check(
        "wrong indentation",
        "  - name: exact",
        "- name: exact\n   threshold: 1",
        place="promptgraft.yaml:8",
        mend="indent `threshold: 1` as the other keys",
    ),
    check(
        "an unclosed quote",
        "offline",
        '"offline',
        place="promptgraft.yaml:9",
        mend="a quote opens in this line and never closes",
    ),
    check(
        "a key twice",
        "models:",
        "version: 1\nmodels:",
        place="promptgraft.yaml:8",
        found="'version'",
        mend="leave one out",
    ),
    check(
        "a misspelled key",
        "metrics:",
        "metrcs:",
        place="promptgraft.yaml:6",
        found="metrcs",
        mend="did you mean `metrics`?",
    ),
    check(
        "a misspelled setting",
        "rollout_budget",
        "rollout_bugdet",
        place="promptgraft.yaml:11: optimizer",
        found="rollout_bugdet",
        mend="did you mean `rollout_budget`?",
    ),
    check(
        "a version of the future",
        "version: 1",
        "version: 2",
        place="promptgraft.yaml:1",
        expected="expected 1",
        found="found 2",
    ),
    Mistake(
        name="an empty project file",
        command="check",
        files={Y: ""},
        place="promptgraft.yaml",
        expected="a project file",
        found="an empty one",
        mend="`promptgraft init` writes one",
    ),
    Mistake(
        name="no project file",
        command="optimize",
        files={Y: None},
        place="there is no promptgraft.yaml in",
        mend="`promptgraft init` makes one",
    ),
    # Mistakes in settings
    check(
        "a list instead of an object",
        "optimizer:\n  rollout_budget: 200",
        "optimizer: [light]",
        place="promptgraft.yaml:10: optimizer",
        expected="an object such as `{",
        found="found a list",
    ),
    check(
        "a number as text",
        "200",
        '"200"',
        place="promptgraft.yaml:11",
        expected="an integer of at least 1",
        found="'200'",
    ),
    check(
        "a budget of zero",
        "200",
        "0",
        place="promptgraft.yaml:11",
        expected="an integer of at least 1",
        found="found 0",
    ),
    check(
        "prompts without names",
        "\n  mail: mail.md",
        " mail.md",
        place="promptgraft.yaml:2: prompts",
        expected="such as `{triage: triage.md}`",
        found="'mail.md'",
    ),
    check(
        "a prompt that is no file",
        "mail: mail.md",
        "mail: mail",
        place="promptgraft.yaml:3: prompts.mail",
        expected="such as `prompts/triage.md`",
        found="'mail'",
    ),
    check(
        "a prompt that is not there",
        "mail.md",
        "mails.md",
        place="promptgraft.yaml:3: prompts.mail",
        found="none at mails.md",
        mend="did you mean `mail.md`?",
    ),
    check(
        "a data set that is not there",
        "cases.jsonl",
        "case.jsonl",
        place="promptgraft.yaml:5: dataset.path",
        found="none at case.jsonl",
        mend="did you mean `cases.jsonl`?",
    ),
    check(
        "a spreadsheet as data set",
        "cases.jsonl",
        "cases.xlsx",
        place="promptgraft.yaml:5: dataset.path",
        expected="a file",
        found="cases.xlsx",
    ),
    check(
        "an unknown metric",
        "exact",
        "exakt",
        place="promptgraft.yaml:7: metrics[0]",
        found="`exakt`",
        mend="did you mean `exact`?",
    ),
    check(
        "the class of a metric instead of its name",
        "exact",
        "Exact",
        place="promptgraft.yaml:7: metrics[0]",
        found="`Exact`",
        mend="did you mean `exact`?",
    ),
    check(
        "an option that a metric does not have",
        "name: exact",
        "name: exact\n    case_sensitive: false",
        place="promptgraft.yaml:8: metrics[0]",
        found="case_sensitive",
        mend="`ignore_case`",
    ),
    check(
        "a model without its provider",
        "offline",
        "gpt-4",
        place="promptgraft.yaml:9: models.task",
        expected="PROVIDER/MODEL",
        found="'gpt-4'",
        mend="providers: anthropic, ",
    ),
    check(
        "a misspelled provider",
        "offline",
        "opnai/gpt",
        place="promptgraft.yaml:9: models.task",
        found="'opnai/gpt'",
        mend="did you mean `openai`?",
    ),
    check(
        "a key in the file",
        "task: offline",
        "task: {provider: openai, model: m, api_key: sk-abcdefghijklmnopqrstuvwx}",
        place="promptgraft.yaml:9: models.task.api_key",
        expected="`${NAME}`",
        found="not shown",
        mend="put the key into an environment variable",
    ),
    check(
        "shares that are more than everything",
        "metrics:",
        "splits: {ratio: {train: 0.8, validation: 0.3}}\nmetrics:",
        place="promptgraft.yaml:6: splits",
        expected="shares that sum to 1",
        found="1.1",
    ),
    check(
        "no models",
        "models:\n  task: offline\n",
        "",
        place="promptgraft.yaml:1",
        expected="the key `models`",
        mend="`{task: offline}`",
    ),
    check(
        "no metrics",
        "metrics:\n  - name: exact\n",
        "",
        place="promptgraft.yaml:1",
        expected="the key `metrics`",
        mend="`[exact]`",
    ),
    # Mistakes in data
    check(
        "columns without names",
        "path: cases.jsonl",
        "path: mails.csv",
        place="mails.csv:2",
        expected="whether the model may see",
        found="`team`",
        mend="`fields: {expected: COLUMN}`",
    ),
    check(
        "columns that are not there",
        "path: cases.jsonl",
        "path: mails.csv\n  fields: {input: mail, expected: team}",
        place="mails.csv:",
        found="no column 'mail'",
        expected="columns: `text`, `team`",
        mend="name one of them in `fields`",
    ),
    data(
        "a broken line of JSON",
        CASES + '{"id": "x", \n',
        place="cases.jsonl:41",
        found="not JSON",
        mend="one whole object per line",
    ),
    data(
        "an empty data set",
        "",
        place="cases.jsonl",
        expected="at least one case",
        found="found none",
        mend='such as {"input": ...',
    ),
    data(
        "the same id twice",
        CASES + CASES.splitlines()[0] + "\n",
        place="cases.jsonl:41: case `m0`",
        found="the same id as in line 1",
        mend="another id",
    ),
    data(
        "too few cases",
        "".join(CASES.splitlines(keepends=True)[:3]),
        place="splits: cases.jsonl",
        found="train 2, validation 0",
        mend="add cases",
    ),
    data(
        "an expected answer that is no choice",
        CASES.replace('"shipping"', '"delivery"'),
        place="cases.jsonl:2: case `m1`",
        expected="options: `billing`, `shipping`",
        found="'delivery'",
    ),
    data(
        "other columns than placeholders",
        CASES.replace('"text"', '"txt"'),
        place="cases.jsonl:1: case `m0`",
        found="`txt`",
        mend="did you mean `text`?",
    ),
    # Mistakes in prompts
    prompt(
        "braces in a prompt with dollar signs",
        "$text",
        "{{text}} in {{lang}}",
        place="section `mail`",
        found="`{{text}}`",
        mend="write `$text`",
    ),
    prompt(
        "a misspelled placeholder",
        "$text",
        "$txt",
        place="promptgraft.yaml:3: prompts.mail",
        found="`text`",
        mend="did you mean `txt`?",
    ),
    prompt(
        "a dollar sign that is none",
        "Name",
        "For $price, name",
        place="promptgraft.yaml:3: prompts.mail",
        expected="a value for `price`",
        found="found none",
        mend="write `$$price`",
    ),
    prompt(
        "front matter without an end",
        "---\n# Task",
        "# Task",
        place="mail.md:1",
        mend="write `---` alone on a line",
    ),
    prompt(
        "a misspelled key of front matter",
        "output:",
        "outptu:",
        place="mail.md:2",
        found="outptu",
        mend="did you mean `output`?",
    ),
    prompt(
        "free text for the embedded model",
        "output: {choices: [billing, shipping]}\n",
        "",
        place="promptgraft.yaml:3: prompts.mail",
        expected="one of several choices",
        found="free text",
        mend="output: {choices: [yes, no]}",
    ),
    prompt(
        "two sections of one name",
        "# Mail",
        "# Task",
        place="mail.md:8",
        found="that of line 4",
        mend="`# Task {#task-2}`",
    ),
    Mistake(
        name="an empty prompt",
        command="check",
        files={"mail.md": ""},
        place="mail.md",
        expected="a prompt",
        found="no text",
        mend="write the instructions into it",
    ),
    # Mistakes in Python that a project names
    check(
        "a module that is not there",
        "mail: mail.md",
        "mail: prompts.py:MAIL",
        place="promptgraft.yaml:3: prompts.mail",
        expected="a Python file",
        found="'prompts.py'",
        mend="name one that exists",
    ),
    check(
        "a name that is not there",
        "mail: mail.md",
        "mail: own.py:MIAL",
        place="promptgraft.yaml:3: prompts.mail",
        found="`MIAL`",
        mend="did you mean `MAIL`?",
    ),
    code(
        "a syntax error",
        "def metric(case, answer):",
        "def metric(case, answer:",
        place="promptgraft.yaml:8: metrics[0]",
        found="SyntaxError",
        mend="own.py, line ",
    ),
    code(
        "a metric with other arguments",
        "case, answer",
        "answer",
        place="promptgraft.yaml:8: metrics[0].function",
        expected="(case, answer)",
        found="its arguments are (answer)",
    ),
    code(
        "a metric that raises",
        "return 1.0",
        "return case['x']",
        place="own.py:6",
        found="TypeError: 'Case' object is not subscriptable",
    ),
    code(
        "a metric that returns a text",
        "return 1.0",
        "return 'good'",
        "eval",
        place="metric `python`, case `",
        expected="a score from 0 to 1",
        found="'good'",
    ),
    Mistake(
        name="a pydantic class as params",
        command="check",
        edits={Y: ("models:", "params: own.py:Params\nmodels:")},
        files={
            "own.py": f"import pydantic\n{CODE}\nclass Params(pydantic.BaseModel):\n    text: str\n"
        },
        place="promptgraft.yaml:8: params",
        expected="a function",
        found="the class Params",
        mend="write a function that returns a Params",
    ),
    Mistake(
        name="an agent that returns a dict of objects",
        command="check --probe",
        files={
            Y: AGENT,
            "own.py": CODE.replace("agent(query)", "agent(query, call)").replace(
                'return "billing"', 'return {"team": object()}'
            ),
        },
        place="agent `own.agent` failed on `m0`",
        expected="a value of JSON or an AgentAnswer",
        found="{'team': <object",
    ),
    Mistake(
        name="an agent that never sees the texts",
        command="check",
        files={Y: AGENT},
        place="promptgraft.yaml:7: agent",
        found="takes the query only",
        mend="let it take `(query, call)`",
    ),
    Mistake(
        name="a silent server",
        command="eval",
        edits={Y: ("task: offline", "task: {python: own.py:MODEL}")},
        files={"own.py": SILENT},
        code=4,
        place="model `m`",
        found="no whole answer within 0.2 s",
        mend="raise `timeout`",
    ),
    # Mistakes on the command line
    line(
        "a misspelled command",
        "optimise",
        place="`optimise`",
        mend="did you mean `optimize`?",
    ),
    line(
        "a misspelled option",
        "optimize --bugdet 10",
        place="optimize: ",
        found="`--bugdet`",
        mend="did you mean `--budget`",
    ),
    line(
        "a budget that is no number",
        "optimize --budget many",
        place="optimize: --budget",
        expected="an integer of at least 1",
        found="'many'",
    ),
    line(
        "a prompt that the project does not have",
        "optimize mial",
        place="promptgraft.yaml",
        found="`mial`",
        mend="did you mean `mail`?",
    ),
    line(
        "apply before the first run",
        "apply",
        place="runs",
        found="there are no runs",
        mend="`promptgraft optimize` makes one",
    ),
    line(
        "an import of Python",
        "import own.py",
        place="own.py",
        expected="a configuration of promptfoo",
        found="none of them",
        mend="`promptgraft init` makes a project",
    ),
    Mistake(
        name="an import that its own check refuses",
        command="import promptfooconfig.yaml",
        files={Y: None, "cases.jsonl": None, "promptfooconfig.yaml": FOREIGN},
        code=0,
        place="promptgraft.yaml:",
        found="train 0, validation 1, test 0",
        mend="add cases",
    ),
    # Mistakes with files of others
    *(
        Mistake(
            name=f"{what} as data set",
            command="check",
            edits={Y: ("cases.jsonl", name)},
            files={name: text},
            place=name,
            found=found,
            mend=mend,
        )
        for what, name, text, found, mend in FOREIGN_DATA
    ),
    data(
        "an expected answer in other letters than the option",
        CASES.replace('"shipping"', '"SHIPPING"'),
        place="cases.jsonl:2: case `m1`",
        expected="options: `billing`, `shipping`",
        found="'SHIPPING'",
        mend="did you mean `shipping`?",
    ),
    line(
        "an import of a folder",
        "import .",
        place=".:",
        expected="expected a file",
        found="found a folder",
        mend="name a file in it",
    ),
    line(
        "an import of the project itself",
        "import promptgraft.yaml",
        place="promptgraft.yaml",
        found="is a project already",
        mend="`promptgraft check` checks it",
    ),
    line(
        "an import of a misspelled file",
        "import case.jsonl",
        place="case.jsonl: ",
        found="No such file",
        mend="did you mean `cases.jsonl`?",
    ),
    # Mistakes with runs, winners and tags
    Mistake(
        name="a prompt left out, outside of a project",
        command="diff",
        files={Y: None},
        place="diff: PROMPT",
        expected="`namespace/key`",
        found="no promptgraft.yaml in /",
        mend="`promptgraft show` lists the prompts of a store",
    ),
    line(
        "runs that are not there",
        "watch",
        place="/runs; ",
        found="there are no runs",
        mend="`promptgraft optimize` makes one",
    ),
    line(
        "a comparison without a run",
        "compare",
        place="compare: RUN",
        found="is missing",
        mend="`promptgraft runs` lists the runs",
    ),
    line(
        "a run as an option",
        "apply --run latest",
        place="apply: ",
        found="`--run`",
        mend="name the run without it",
    ),
    line(
        "a threshold in percent",
        "eval --fail-under 80",
        place="eval: --fail-under",
        expected="a number from 0 to 1",
        found="'80'",
        mend="80 % is 0.8",
    ),
    line(
        "a set of cases that does not exist",
        "eval --split dev",
        place="eval: --split",
        expected="one of `test`, `validation`, `train`, `all`",
        found="'dev'",
    ),
    line(
        "a misspelled template",
        "init --template agnet x",
        place="init: --template",
        expected="one of `classify`",
        found="'agnet'",
        mend="did you mean `agent`?",
    ),
    line(
        "a rollback of nothing",
        "rollback mail",
        place="prompt `prompts/mail`",
        found="nothing is stored",
        mend="`promptgraft apply` stores the winner of a run",
    ),
    line(
        "a command of a group that does not exist",
        "meta show",
        place="meta: ",
        found="`show`",
        mend="there: `apply`, `diff`",
    ),
    line(
        "a replay of no run",
        "replay nope",
        place="/runs; ",
        found="there are no runs",
        mend="--runs names another folder",
    ),
    # Mistakes with jobs and servers
    line(
        "a mistyped database",
        "jobs list --jobs sqlite:///job.db",
        place="database sqlite:///job.db",
        found="there is no file",
        mend="`promptgraft jobs submit`, `worker` and `serve` make one",
    ),
    line(
        "a file as database",
        "jobs list --jobs jobs.db",
        place="url: ",
        expected="expected sqlite:///FILE",
        mend="did you mean `sqlite:///jobs.db`?",
    ),
    line(
        "jobs without a database",
        "jobs list",
        place="--jobs",
        mend="name the database, such as sqlite:///jobs.db",
    ),
    line(
        "a server without a token",
        "jobs list --server http://127.0.0.1:1",
        place="--server",
        found="PROMPTGRAFT_TOKEN",
        mend="`promptgraft tokens create` makes one",
    ),
    line(
        "a state that jobs do not have",
        "jobs prune --older-than 3 --state done --jobs sqlite:///jobs.db",
        place="jobs prune: --state",
        expected="one of `completed`, `failed`, `cancelled`",
        found="'done'",
    ),
    line(
        "a setting without a value",
        "jobs submit --set budget --jobs sqlite:///jobs.db",
        place="--set",
        expected="NAME=VALUE",
        found="'budget'",
    ),
    line(
        "a data set that nobody has saved",
        "jobs submit --dataset hard --jobs sqlite:///jobs.db",
        place="project `",
        found="no data set `hard`",
        mend="`promptgraft jobs datasets save` saves one",
    ),
    line(
        "a change of nothing",
        "jobs change 3f2a --jobs sqlite:///jobs.db",
        place="change: ",
        mend="give what changes, such as --budget",
    ),
    line(
        "a token that may do nothing",
        "tokens create ci --jobs sqlite:///jobs.db",
        place="tokens create: --scope",
        found="is missing",
        expected="read, submit, approve or admin",
    ),
    line(
        "a port that cannot be",
        "serve --port 99999 --jobs sqlite:///jobs.db",
        place="serve: --port",
        expected="an integer from 0 to 65,535",
        found="'99999'",
    ),
    line(
        "an address that others reach",
        "serve --host 0.0.0.0 --jobs sqlite:///jobs.db",
        place="--host 0.0.0.0",
        mend="give --certificate and --key, or --behind-proxy",
    ),
    line(
        "a worker in a folder that does not exist",
        "worker --until-idle --jobs sqlite:///jbos/jobs.db",
        place="database sqlite:///jbos/jobs.db",
        found="unable to open database file",
        mend="name a file in a folder that exists",
    ),
    # Mistakes in calls of the library
    python(
        "the class of a metric in Python",
        "from promptgraft.evals.metrics.text import Exact\n"
        "pg.optimize('Name it', rows, Exact, model='offline')",
        place="metrics: ",
        expected="metrics.exact()",
        found="<class ",
        mend="call it: `Exact()`",
    ),
    python(
        "Texts of a lambda to optimize",
        "texts = pg.Texts({'a': 'x'}, run=lambda asked: 'b')\n"
        "pg.optimize(texts, rows, 'exact', model='offline')",
        place="key ",
        expected="lower-case letters",
        found="'<lambda>'",
        mend="give one",
    ),
    python(
        "a placeholder that no row has",
        f"pg.optimize('Name $team', {ROWS}, 'exact', model='offline')",
        place="prompt: ",
        expected="they have `a`, `b`",
        found="`$team`",
        mend="write `$$team`",
    ),
)

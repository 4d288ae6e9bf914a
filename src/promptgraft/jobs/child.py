"""``python -m promptgraft.jobs.child``: a process for one job."""

from promptgraft.jobs.worker import run_child

if __name__ == "__main__":
    run_child()

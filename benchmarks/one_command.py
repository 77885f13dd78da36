"""Runs one command and prints what it took, as JSON: `python one_command.py LIMIT_SECONDS COMMAND...`

A process begins with the peak memory of the one that started it. So this small one, which imports next to nothing,
stands between the benchmark and what is measured.
"""

import json
import resource
import subprocess
import sys
import time


def main() -> None:
    limit, command = float(sys.argv[1]), sys.argv[2:]
    start = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        print(json.dumps({"timeout": True}))
        return
    seconds = time.perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    unit = 1 if sys.platform == "darwin" else 1024
    measured = {
        "timeout": False,
        "seconds": seconds,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_megabytes": used.ru_maxrss * unit / 1e6,
        "status": done.returncode,
        "output": done.stdout,
        "errors": done.stderr[-2000:],
    }
    print(json.dumps(measured))


if __name__ == "__main__":
    main()

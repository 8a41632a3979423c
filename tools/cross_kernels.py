"""Compile the native kernels for aarch64 with Zig's clang: ``make cross``.

It shows that they compile for NEON and with clang; nothing is linked or run. Python's headers are
this machine's, which are the same for both processors as far as the kernels read them.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.paths import ROOT

TARGET = "aarch64-linux-gnu"
NATIVE = ROOT / "worker/embertide/kernels/native"
OBJECTS = ROOT / ".cache/cross" / TARGET
_FLAGS = ("-std=c++20", "-O1", "-Wall", "-Wextra", "-Wshadow", "-fPIC", "-fvisibility=hidden")
_ISA_FLAGS = ("-DEMBERTIDE_ISA=baseline", "-O3", "-fno-math-errno", "-fno-trapping-math")
"""Those of worker/CMakeLists.txt, for the one instruction set that aarch64 has there."""
_AARCH64 = 183
"""The machine that an ELF file's header has there."""


def compile_source(source: Path) -> str:
    """Compile a file into `OBJECTS`; returns the compiler's errors, "" without any."""
    import nanobind

    target = OBJECTS / f"{source.stem}.o"
    target.unlink(missing_ok=True)
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "ziglang", "c++", "-target", TARGET, "-c", "-o", str(target)),
            *_FLAGS,
            *(_ISA_FLAGS if source.stem.endswith("_isa") else ()),
            *("-I", str(NATIVE), "-isystem", nanobind.include_dir()),
            *("-isystem", sysconfig.get_path("include"), str(source)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        return ended.stderr or f"{source.name}: the compiler ended with {ended.returncode}"
    machine = machine_of(target.read_bytes())
    return "" if machine == _AARCH64 else f"{target} is for machine {machine}, not {_AARCH64}"


def machine_of(elf: bytes) -> int:
    """The processor that an ELF file is for; -1 of another file."""
    return int(struct.unpack_from("<H", elf, 18)[0]) if elf[:4] == b"\x7fELF" else -1


def main() -> int:
    """Compile all sources; 1 where one does not compile."""
    OBJECTS.mkdir(parents=True, exist_ok=True)
    sources = sorted(NATIVE.glob("*.cpp"))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        errors = [error for error in pool.map(compile_source, sources) if error]
    print("\n".join(errors), end="\n" if errors else "")
    print(f"[cross] {len(sources) - len(errors)} of {len(sources)} files compile for {TARGET}")
    return 1 if errors or not sources else 0


if __name__ == "__main__":
    sys.exit(main())

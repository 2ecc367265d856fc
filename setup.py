"""The one part of the build that is not plain Python: the optional compiled kernel.

Without a compiler, or without Cython at build time, the package installs all the same and uses its
slower fall-back. OTTLA_KERNEL_CFLAGS adds compiler options (a sanitizer's, say).
"""

from __future__ import annotations

import os
import shlex
from glob import glob

from setuptools import Extension, setup

KERNEL = "src/ottla/records/compiled"


def extensions() -> list[Extension]:
    """The kernel, or nothing where Cython is missing."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        print("Cython is not there: installing without the compiled kernel")
        return []
    options = shlex.split(os.environ.get("OTTLA_KERNEL_CFLAGS", ""))
    kernel = Extension(
        "ottla.records._kernel",
        sources=[f"{KERNEL}/kernel.pyx"],
        depends=glob(f"{KERNEL}/*.pxi"),
        extra_compile_args=["-O3", *options],
        extra_link_args=options,
    )
    # The C file goes under build/, where nobody takes it for a source.
    found = list(cythonize([kernel], build_dir="build/cython"))
    for extension in found:
        # Set here, because cythonize makes new extensions and forgets it.
        extension.optional = True
    return found


setup(ext_modules=extensions())

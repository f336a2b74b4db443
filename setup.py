"""Only what pyproject.toml can't say: the compiled record codec, left out where there is no compiler."""

from setuptools import Extension, setup

try:
    from Cython.Build import cythonize
except ImportError:
    extensions = []
else:
    extensions = cythonize(
        [
            Extension(
                "millstream.records._columns",
                ["src/millstream/records/_columns.pyx"],
                extra_compile_args=["-O3"],
                optional=True,  # millstream.records falls back to numpy
            )
        ],
        compiler_directives={"language_level": 3},
    )

setup(ext_modules=extensions)

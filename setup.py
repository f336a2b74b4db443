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
                f"millstream.records.{name}",
                [f"src/millstream/records/{name.replace('.', '/')}.pyx"],
                extra_compile_args=["-O3"],
                optional=True,  # millstream.records falls back to numpy and plain Python
            )
            for name in ("_check", "columns._columns", "columns._json", "keys._keys")
        ],
        compiler_directives={"language_level": 3},
    )

setup(ext_modules=extensions)

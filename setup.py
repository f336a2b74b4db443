"""Only what pyproject.toml can't say: the compiled record codec, left out where it can't be compiled."""

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
                extra_compile_args=["-O3", "-g0"],  # debug information would be most of the size
            )
            for name in ("_check", "columns._columns", "columns._json", "keys._keys")
        ],
        compiler_directives={"language_level": 3},
    )
for extension in extensions:
    extension.optional = True  # millstream.records falls back to numpy and plain Python; cythonize drops it

setup(ext_modules=extensions)

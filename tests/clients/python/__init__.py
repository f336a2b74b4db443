"""Python's clients, each as the programs that ``tests.support.programs`` describes."""

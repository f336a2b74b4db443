"""What prepares a checkout and writes what is generated from the code. Not installed with the package."""

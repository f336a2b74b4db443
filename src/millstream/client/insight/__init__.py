"""What is known about a cluster from outside: lag, open transactions, how far back topics reach, records at
rest."""

"""Views: the tables that pipelines keep, their rows, and SQL."""

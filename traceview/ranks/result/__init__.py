"""Tables, findings and verdict of a job, from its matched collectives."""

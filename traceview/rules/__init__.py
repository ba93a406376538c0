"""Findings as data: a rule says the sentences, its claims the figures, the engine the rest."""

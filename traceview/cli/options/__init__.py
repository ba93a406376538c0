"""Options that several verbs have: their values, what they write, how a shell completes them."""

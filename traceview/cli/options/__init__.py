"""Options that several verbs have: their values, and how a shell completes them."""

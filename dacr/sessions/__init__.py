"""What the stages call: learn, consolidate, the state between sessions, prediction."""

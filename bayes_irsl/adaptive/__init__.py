"""What to evaluate next: beliefs about a subject, targets, policies, sessions, replay."""

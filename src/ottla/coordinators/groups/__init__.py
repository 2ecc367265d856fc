"""Consumer groups: membership by both protocols, and committed offsets."""

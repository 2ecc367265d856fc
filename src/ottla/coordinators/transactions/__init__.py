"""The transaction coordinator's decisions: who may write in a transaction, how it ends, and what must follow."""

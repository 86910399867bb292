"""Training of networks that attacks and audits use."""

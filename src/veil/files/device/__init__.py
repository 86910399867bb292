"""Files of a client: the folder of its owner (`home`), its `secret`, its `ledger`, and the `outbox` of messages."""

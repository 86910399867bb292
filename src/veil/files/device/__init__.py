"""Files of a client: the folder of its owner (`home`), its `secret`, its `ledger`, the draws of
earlier releases (`drawn`), the decoy photographs that they used up (`spent`) and the `outbox` of messages.
"""

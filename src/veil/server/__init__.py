"""The service: messages in over HTTP, maps, poses and receipts out; nothing raw can be sent to it, and no query is kept.

`service.Service` does the work without HTTP, `app.create_app` puts it behind routes (docs/reference/service.md), and
`veil serve` runs both. It needs the extra `veil[serve]`.
"""

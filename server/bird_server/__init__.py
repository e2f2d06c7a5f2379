"""The service: gateway, engine, ledger and scoring. Nothing is imported here, so that a scoring child stays small."""

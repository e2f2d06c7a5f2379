"""bird_env: a private, writable SQLite database for every RL trajectory, scored as BIRD-CRITIC scores.

What users import. The names below are the whole public surface; modules that start with an underscore are not.
"""

"""`python -m bird_env` is `bird-env`."""

from bird_env.cli import main

if __name__ == "__main__":
    main()

"""``python -m latent_cli``"""

from latent_cli.main import main

main()

"""A process of the local runner: Beam's own worker without its log of every connection. Started by ``running``."""

import logging
import sys

if __name__ == "__main__":
    logging.disable(logging.WARNING)

    from apache_beam.runners.worker import sdk_worker_main

    sdk_worker_main.main(sys.argv)

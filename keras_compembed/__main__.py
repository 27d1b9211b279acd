"""`python -m keras_compembed` is the command `keras-compembed`."""

import sys

from keras_compembed_command import main

if __name__ == "__main__":
    sys.exit(main())

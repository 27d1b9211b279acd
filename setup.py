"""Settings are in setup.cfg; here is what they cannot say."""

import os
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithPresets(build_py):
    """Puts `saved_models/` into the package, for `from_preset`."""

    def run(self):
        super().run()
        if not getattr(self, "editable_mode", False):
            target = os.path.join(
                self.build_lib, "keras_compembed/saved_models"
            )
            shutil.copytree("saved_models", target, dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithPresets})

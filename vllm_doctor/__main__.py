"""`python -m vllm_doctor`."""

import sys

from vllm_doctor.cli.main import main

sys.exit(main())

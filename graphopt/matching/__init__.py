"""Where a rule applies, and which condition says no: pure, and a refusal is a value."""

"""The machinery of the test cluster; tests/cluster/README.md tells how it works."""

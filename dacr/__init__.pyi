from dacr.scenarios.opening import scenario as scenario

"""The stateless scheduler: doors for clients, a pure planner, a driver a worker, the store."""

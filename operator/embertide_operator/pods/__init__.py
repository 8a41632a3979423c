"""The objects that the operator creates for a job: pure functions of job, attempt and settings.

children    all objects of a job: StatefulSet, Service, ConfigMap, budget
worker_pods their pods: containers, environment, resources, security
push_pod    the pod that pushes a version into an index
gangs, network_policy, defaults  what queues, the network and the platform add
drift       whether an object is still as it was applied
"""

module embertide.dev/tests/cluster/argo

go 1.26.8

require (
	github.com/tidwall/gjson v1.18.0
	k8s.io/apimachinery v0.30.1
)

require (
	github.com/go-logr/logr v1.4.1 // indirect
	github.com/tidwall/match v1.1.1 // indirect
	github.com/tidwall/pretty v1.2.0 // indirect
	k8s.io/klog/v2 v2.120.1 // indirect
	k8s.io/utils v0.0.0-20230726121419-3b25d923346b // indirect
)

package rollout

// checkedNode is what an expression may use of a Node, which is what the controllers keep. Only its types matter, for
// CompileCheck: the expression is evaluated for the decoded JSON, in which quantities and times are texts. An expression
// about anything else, such as status.images, could never be true, so CompileCheck refuses it.
type checkedNode struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Metadata   nodeMetadata `json:"metadata"`
	Spec       nodeSpec     `json:"spec"`
	Status     nodeStatus   `json:"status"`
}

type nodeMetadata struct {
	Name              string            `json:"name"`
	UID               string            `json:"uid"`
	ResourceVersion   string            `json:"resourceVersion"`
	Generation        int64             `json:"generation"`
	CreationTimestamp string            `json:"creationTimestamp"`
	DeletionTimestamp string            `json:"deletionTimestamp"`
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
}

type nodeSpec struct {
	PodCIDR       string      `json:"podCIDR"`
	PodCIDRs      []string    `json:"podCIDRs"`
	ProviderID    string      `json:"providerID"`
	Unschedulable bool        `json:"unschedulable"`
	Taints        []nodeTaint `json:"taints"`
}

type nodeTaint struct {
	Key       string `json:"key"`
	Value     string `json:"value"`
	Effect    string `json:"effect"`
	TimeAdded string `json:"timeAdded"`
}

type nodeStatus struct {
	Capacity    map[string]string `json:"capacity"`
	Allocatable map[string]string `json:"allocatable"`
	Conditions  []nodeCondition   `json:"conditions"`
	Addresses   []nodeAddress     `json:"addresses"`
	NodeInfo    nodeInfo          `json:"nodeInfo"`
}

type nodeCondition struct {
	Type               string `json:"type"`
	Status             string `json:"status"`
	Reason             string `json:"reason"`
	LastTransitionTime string `json:"lastTransitionTime"`
}

type nodeAddress struct {
	Type    string `json:"type"`
	Address string `json:"address"`
}

type nodeInfo struct {
	MachineID               string `json:"machineID"`
	SystemUUID              string `json:"systemUUID"`
	BootID                  string `json:"bootID"`
	KernelVersion           string `json:"kernelVersion"`
	OSImage                 string `json:"osImage"`
	ContainerRuntimeVersion string `json:"containerRuntimeVersion"`
	KubeletVersion          string `json:"kubeletVersion"`
	OperatingSystem         string `json:"operatingSystem"`
	Architecture            string `json:"architecture"`
}
